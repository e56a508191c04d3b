package requests

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// answerData answers a request that has no lane.
func (c *replier) answerData(r *dispatch.Request, h nats.Header, data []byte, err error) {
	if err != nil {
		c.Fail(r, nil, err)
		return
	}

	if err = c.sendData(h, data); err != nil {
		c.h.config.ReplyFailed(err)
	}

	c.replied(r, err)
	c.ended()
}

// inspect has the inspector answer the request.
func (c *replier) inspect(r dispatch.Request) error {
	asked := c.inspection
	if asked.known {
		return c.await(&r)
	}
	return c.h.Inspector.answer(asked, func(payload []byte, err error) {
		if errors.Is(err, errWaits) {
			if err = c.await(&r); err == nil {
				return
			}
		}
		c.audited(asked.changed, err)
		r.Answered = time.Now()
		c.answerData(&r, asked.header, payload, err)
	})
}

// await has a request wait for its job. After an error it is not answered.
func (c *replier) await(r *dispatch.Request) error {
	w := c.inspection.awaits
	kind := dispatch.KindOf(w.Job.Queue)
	w.Answer = func(found *fdbpq.Result, err error) {
		var h nats.Header
		var payload []byte
		if err == nil {
			h, payload = outcomeOf(kind, found)
		}
		r.Answered = time.Now()
		c.answerData(r, h, payload, err)
	}
	return c.h.config.Results.Add(w)
}
