package sources

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/subjects/settings"
)

// errSilent is of a session whose consumer delivers none of the messages that are there for it.
var errSilent = errors.New("JetStream sends heartbeats and no messages")

// endSilence handles the arrival of a message. The next silence has a look of its own, unless looks
// are refused.
func (s *session) endSilence() {
	s.quietSince, s.undelivered = time.Now(), 0
	if s.lookAfter.Sub(s.quietSince) <= lookEvery {
		s.lookAfter = s.quietSince
	}
}

// hearSilence handles a heartbeat. A paused consumer has those too, so after some time without
// messages this reads the state of the consumer, at most once in lookEvery during one silence. If
// JetStream had messages then and has delivered none by a later heartbeat, the session ends.
func (s *session) hearSilence() error {
	now := time.Now()
	switch {
	case now.Sub(s.quietSince) < heartbeat:
		return nil
	case s.undelivered > 0:
		return fmt.Errorf("%w, although stream %s has %d for this source: trying again with "+
			"another consumer", errSilent, s.source.Stream, s.undelivered)
	case now.Before(s.lookAfter):
		return nil
	}

	s.quietSince, s.lookAfter = now, now.Add(lookEvery)
	filter := s.consumer.CachedInfo().Config.FilterSubject // as the server has made the consumer
	info, err := s.consumer.Info(s.connected)
	switch {
	case s.connected.Err() != nil || errors.Is(err, jetstream.ErrConsumerNotFound):
		return err
	case err != nil: // it can draw all the same
		s.lookAfter = now.Add(refusedLook)
		s.config.Warn("a source cannot see whether its consumer is paused or stuck: has this "+
			"bridge the right to ask for CONSUMER.INFO?", "queue", s.name.Name, "error", err)
		return nil
	case info.Config.FilterSubject != filter || len(info.Config.FilterSubjects) > 0:
		return fmt.Errorf("%w: the filter of its consumer was changed", errSilent)
	}

	next := s.state
	if next.Lag = info.NumPending; next.Lag == 0 { // otherwise once something arrives
		next.Waiting = ""
	}

	if until := info.Config.PauseUntil; info.Paused && until != nil {
		next.Waiting = settings.Cut(fmt.Sprintf("the consumer %s of stream %s is paused until %s: "+
			"see nats consumer resume", info.Name, info.Stream, until.Format(time.RFC3339)), 500)
	} else {
		s.undelivered = info.NumPending
	}

	if next.Waiting != "" && next.Waiting != s.state.Waiting {
		s.config.Warn("a source draws nothing", "queue", s.name.Name, "why", next.Waiting)
	}

	return s.change(func(state *settings.SourceState) { *state = next })
}
