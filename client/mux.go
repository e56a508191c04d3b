package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// HeaderType is the header that says of which type a job is, for a [Mux]. Header names are case
// sensitive.
const HeaderType = "Type"

// Type gives an item a type, which is the header [HeaderType]. A [Mux] looks at it.
func Type(name string) PushOption { return header(HeaderType, name) }

// Mux has the Work of jobs of several types. Its method Work is a [Work] that does a job by that of
// its type:
//
//	var mux client.Mux
//	mux.Handle("email", sendEmail)
//	mux.Handle("report", writeReport)
//	worker, err := jobs.NewWorker(mux.Work, client.WorkerOptions{})
//
// The zero value is ready to use. It must not be copied.
type Mux struct {
	works sync.Map // type, or otherTypes, to Work
}

// otherTypes is the key of the Work that NotFound has set.
type otherTypes struct{}

// Handle has jobs of a type done by work. "" is the type of jobs without the header. It panics if
// work is nil, or if the type has one already.
func (m *Mux) Handle(jobType string, work Work) {
	if work == nil {
		panic(fmt.Sprintf("client: the Work for jobs of type %q is nil", jobType))
	}
	if _, twice := m.works.LoadOrStore(jobType, work); twice {
		panic(fmt.Sprintf("client: jobs of type %q have a Work already", jobType))
	}
}

// NotFound has jobs of all other types done by work. Without it, such a job fails: it goes back,
// maybe to a worker that knows its type, as often as the settings of the queue allow.
func (m *Mux) NotFound(work Work) { m.works.Store(otherTypes{}, work) }

// Work does a job by the Work of its type.
func (m *Mux) Work(ctx context.Context, job *Job) error {
	jobType := job.Headers.Get(HeaderType)
	for _, key := range []any{jobType, otherTypes{}} {
		if work, found := m.works.Load(key); found {
			return work.(Work)(ctx, job)
		}
	}
	if jobType == "" {
		return errors.New("nobody handles jobs without the header " + HeaderType)
	}
	return fmt.Errorf("nobody handles jobs of type %q", jobType)
}
