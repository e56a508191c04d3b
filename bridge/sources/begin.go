package sources

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// begin begins a source.
func (p *session) begin(info *jetstream.StreamInfo) error {
	first, last, start := max(info.State.FirstSeq, 1), info.State.LastSeq, p.source.Start.Sequence()
	next := p.state
	next.Created, next.Sequence = info.Created, max(start, first)-1
	next.Consumer = cmp.Or(next.Consumer, p.drawer.consumer)
	if p.source.Start == "new" {
		next.Sequence = last
	}
	switch why := p.lost(info, start); {
	case next.Sequence > last:
		return p.stopSource(fmt.Sprintf("start is %d, and the last message of stream %s is %d: set another start", start, p.source.Stream, last))
	case p.retention == jetstream.WorkQueuePolicy && next.Sequence >= first:
		return p.stopSource(fmt.Sprintf("stream %s is a work queue, which is drawn from its start: set start to \"all\"", p.source.Stream))
	case start > 0 && why != "":
		return p.stopSource(why)
	}
	return p.commit(&next, nil, nil)
}

// again says how to draw the stream from another place.
const again = "remove the source and set it again, with the start that you want"

// compare stops the source if this stream is not the one that was drawn from, or has lost messages.
func (p *session) compare(info *jetstream.StreamInfo) error {
	s, name := &p.state, p.source.Stream
	why := p.lost(info, s.Sequence+1)
	switch {
	case !s.Created.Equal(info.Created):
		why = fmt.Sprintf("stream %s was created again, at %s: %s", name, info.Created.UTC().Format(time.RFC3339), again)
	case info.State.LastSeq < s.Sequence:
		why = fmt.Sprintf("stream %s ends with message %d, and %d was drawn: it was restored, or has lost messages: %s",
			name, info.State.LastSeq, s.Sequence, again)
	case strings.Contains(s.Consumer, unique):
		_, err := p.stream.Consumer(p.ctx, s.Consumer)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		} else if err != nil {
			why = fmt.Sprintf("the consumer %s of stream %s was removed, and messages after %d may have gone with it: remove the source and set it again with \"start\":%d to go on without them",
				s.Consumer, name, s.Sequence, s.Sequence+1)
		}
	}
	if why == "" {
		return nil
	}
	return p.stopSource(why)
}

// lost returns why the source has to stop if messages from the one with that sequence on are gone, ""
// if it has not. With a filter nobody knows whether it was to draw them. From streams without limits,
// those that were drawn are gone, too. A limit per subject is there to remove messages.
func (p *session) lost(info *jetstream.StreamInfo, from uint64) string {
	if p.source.Filter != "" || p.retention != jetstream.LimitsPolicy || info.Config.MaxMsgsPerSubject > 0 || info.State.FirstSeq <= from {
		return ""
	}
	return fmt.Sprintf("messages %d to %d of stream %s were removed before they were drawn: set the source with \"start\":%d to go on without them",
		from, info.State.FirstSeq-1, p.source.Stream, info.State.FirstSeq)
}
