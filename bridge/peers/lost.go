package peers

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// failedForward is a forwarded pop that no peer will answer, and what to tell its
// client.
type failedForward struct {
	dispatch.Request
	number uint64
	err    error
}

var (
	errPeerGone = fmt.Errorf("%w: the bridge that pops from this queue is gone, the pop may or may not have been done",
		kv.ErrCommitUnknown)
	errPeerSilent = fmt.Errorf("%w: the bridge that pops from this queue does not say what became of the pop, which may or may not have been done",
		kv.ErrCommitUnknown)
	errForwardLost = fmt.Errorf("%w: the pop did not reach the bridge that pops from this queue and was not run: try again",
		dispatch.ErrUnavailable)
)

// failLost answers the pops that no peer will answer.
func failLost(lost []failedForward) {
	for i := range lost {
		l := &lost[i]
		l.Answered = time.Now()
		l.Replier.Fail(&l.Request, nil, l.err)
	}
}
