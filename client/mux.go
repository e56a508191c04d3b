package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// HeaderType is the header with the type of a job, for a [Mux]. Header names are case sensitive.
const HeaderType = "Type"

// Type gives an item a type, in the header [HeaderType], by which a [Mux] finds its Work.
func Type(name string) PushOption { return header(HeaderType, name) }

// Mux dispatches jobs to the [Work] for their type. Its method Work is a Work itself:
//
//	var mux client.Mux
//	mux.Handle("email", sendEmail)
//	mux.Handle("report", writeReport)
//	worker, err := jobs.NewWorker(mux.Work, client.WorkerOptions{})
//
// The zero value is ready to use. It is safe for concurrent use, and must not be copied.
type Mux struct {
	works sync.Map // type, or otherTypes, to Work
}

// otherTypes is the key of the Work that NotFound sets.
type otherTypes struct{}

// Handle sets the Work for jobs of a type. "" is the type of jobs without the header. It panics if
// work is nil or the type has a Work already.
func (m *Mux) Handle(jobType string, work Work) {
	if work == nil {
		panic(fmt.Sprintf("client: the Work for jobs of type %q is nil", jobType))
	}
	if _, twice := m.works.LoadOrStore(jobType, work); twice {
		panic(fmt.Sprintf("client: jobs of type %q have a Work already", jobType))
	}
}

// NotFound sets the Work for jobs of all other types. Without one, such a job fails: it goes back,
// maybe to a worker that knows its type, as often as the settings of the queue allow.
func (m *Mux) NotFound(work Work) { m.works.Store(otherTypes{}, work) }

// Work calls the Work for the type of the job, and returns its error.
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
