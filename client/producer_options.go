package client

import (
	"cmp"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// ProducerOptions are the options of a Producer. The zero value is ready to use.
type ProducerOptions struct {
	// MaxItems is how many pushes may be under way at a time, 1 or more; 0 means 4,096, which is
	// also the most items of a batch.
	MaxItems int

	// MaxBytes is how many bytes these may have, values and headers, 1 or more; 0 means 8 MiB. A
	// larger item goes alone.
	MaxBytes int

	// RetryFor is for how long a push that failed for the time being is tried again, from PushAsync
	// on; 0 means 30 s, less than 0 never. It must be shorter than the duplicate window of the
	// queue, two minutes unless its settings say otherwise; beyond it, message ids do not keep an
	// item from being there twice.
	RetryFor time.Duration
}

// Defaults of ProducerOptions.
const (
	defaultMaxItems = subjects.MaxFrames
	defaultMaxBytes = 8 << 20
	defaultRetryFor = 30 * time.Second
)

// complete sets what is 0 to its default. The error lists all that is wrong with the options.
func (o *ProducerOptions) complete() error {
	var problems []string
	if o.MaxItems < 0 {
		problems = append(problems, fmt.Sprintf("MaxItems is %d: want 1 or more, or 0 for %d", o.MaxItems, defaultMaxItems))
	}
	if o.MaxBytes < 0 {
		problems = append(problems, fmt.Sprintf("MaxBytes is %d: want 1 or more, or 0 for %d", o.MaxBytes, defaultMaxBytes))
	}

	o.MaxItems = cmp.Or(o.MaxItems, defaultMaxItems)
	o.MaxBytes = cmp.Or(o.MaxBytes, defaultMaxBytes)
	o.RetryFor = cmp.Or(o.RetryFor, defaultRetryFor)
	return badOptions(problems)
}
