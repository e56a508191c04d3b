package bridge

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// takeTimes reads the delay and the expiry of a push from its headers, and takes the delay out of
// them. Errors wrap ErrBadRequest or subjects.ErrTiming.
func takeTimes(h nats.Header, op *fdbpq.Op) error {
	delayed, scheduled, expires := false, false, false
	for name, values := range h {
		var err error
		switch {
		case name == subjects.HeaderDelay:
			delayed = true
			op.Delay, err = single(name, values, subjects.ParseDelay)
		case strings.EqualFold(name, subjects.HeaderSchedule):
			if scheduled {
				return errTwice(name)
			}
			scheduled = true
			op.At, err = single(name, values, func(text string) (time.Time, error) { return subjects.ParseSchedule(text, time.Now()) })
		case strings.EqualFold(name, subjects.HeaderTTL):
			if expires {
				return errTwice(name)
			}
			expires = true
			if op.TTL, err = single(name, values, subjects.ParseTTL); err != nil {
				return err
			}
			if op.TTL == 0 {
				op.TTL = fdbpq.Never
			}
			continue // it comes back with the item
		default:
			continue
		}

		if err != nil {
			return err
		}
		delete(h, name)
	}

	if delayed && scheduled {
		return fmt.Errorf("%w: headers %s and %s: want one of them", ErrBadRequest, subjects.HeaderDelay, subjects.HeaderSchedule)
	}
	return nil
}

// single parses a header that has one value.
func single[T any](name string, values []string, parse func(string) (T, error)) (value T, err error) {
	if len(values) != 1 {
		return value, errTwice(name)
	}
	if value, err = parse(values[0]); err != nil {
		return value, fmt.Errorf("header %s: %w", name, err)
	}
	return value, nil
}

func errTwice(name string) error {
	return fmt.Errorf("%w: header %s given twice: want it once", ErrBadRequest, name)
}
