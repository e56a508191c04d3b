package testenv_test

import (
	"context"
	"testing"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// One line gives a test a queue, with a NATS server and a bridge of its own.
func ExampleNew() {
	_ = func(t *testing.T) { // TestReports
		jobs := client.New(testenv.New(t, testenv.Options{}).Conn).PriorityQueue("jobs")
		if _, err := jobs.Push(t.Context(), 5, []byte("write the report")); err != nil {
			t.Fatal(err)
		}

		ctx, stop := context.WithCancel(t.Context())
		worker, err := jobs.NewWorker(func(_ context.Context, job *client.Job) error {
			defer stop() // after the first job
			return writeReport(job)
		}, client.WorkerOptions{})
		if err != nil {
			t.Fatal(err)
		}

		if err := worker.Run(ctx); err != nil { // until the job is acknowledged
			t.Fatal(err)
		}
	}
}

// writeReport is what ExampleNew tests.
func writeReport(*client.Job) error { return nil }
