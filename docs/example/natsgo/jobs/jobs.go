// Package jobs does jobs of queue "jobs", with nothing but nats.go.
package jobs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/nats-io/nats.go"
)

// Push pushes one job, and two in one transaction.
func Push(ctx context.Context, nc *nats.Conn, out io.Writer) error {
	one := nats.NewMsg("pq.jobs.push")
	one.Header.Set("Pq-Priority", "3")
	one.Header.Set("Nats-Msg-Id", "call") // whoever pushes it again gets the reply of the first push
	one.Data = []byte("call back")
	reply, err := request(ctx, nc, one)
	if err != nil {
		return err
	}
	var pushed struct{ Duplicate bool }
	if err := json.Unmarshal(reply.Data, &pushed); err != nil {
		return err
	}

	two := nats.NewMsg("pq.jobs.push.batch")
	two.Data = append(frame(5, "report", "write the report"), frame(1, "fire", "put out the fire")...)
	if reply, err = request(ctx, nc, two); err != nil {
		return err
	}
	var batch struct{ Duplicates []int } // their numbers, counted from 0
	if err := json.Unmarshal(reply.Data, &batch); err != nil {
		return err
	}

	before := len(batch.Duplicates)
	if pushed.Duplicate {
		before++
	}
	fmt.Fprintf(out, "%d pushed, %d were there before\n", 3-before, before)
	return nil
}

// frame encodes an item of a batch of pushes.
func frame(priority int64, msgID, value string) []byte {
	headers := "NATS/1.0\r\nNats-Msg-Id: " + msgID + "\r\n\r\n"
	b := binary.BigEndian.AppendUint64(nil, uint64(priority))
	b = binary.BigEndian.AppendUint32(b, uint32(len(headers)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(append(b, headers...), value...)
}

// Work does jobs until ctx ends. Then it finishes the one under way.
func Work(ctx context.Context, nc *nats.Conn, out io.Writer) error {
	for ctx.Err() == nil {
		// Without heartbeats, a worker that dies while it waits would still be given a job.
		id := rand.Text() // to cancel the request when ctx ends
		jobs, err := fetch(ctx, nc, 1, id, `{"ack_wait":"30s","expires":"5m","idle_heartbeat":"5s","id":"`+id+`"}`)
		switch {
		case ctx.Err() != nil && len(jobs) > 0: // it came just then
			_ = settle(context.WithoutCancel(ctx), nc, jobs[0], `-NAK {"snooze":true}`) // otherwise it comes back when the lease is over
		case ctx.Err() != nil || errors.Is(err, errEmpty):
		case err != nil && !temporary(err):
			return err
		case err != nil:
			pause(ctx, err)
		default:
			do(context.WithoutCancel(ctx), nc, jobs[0], out)
		}
	}
	return nil
}

// do does a job, and extends its lease meanwhile.
func do(ctx context.Context, nc *nats.Conn, job *nats.Msg, out io.Writer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	extended := make(chan struct{})
	go func() {
		defer close(extended)
		for {
			select {
			case <-time.After(10 * time.Second): // a third of ack_wait
				if err := settle(ctx, nc, job, "+WPI"); errors.Is(err, errLost) {
					cancel() // somebody else may have the job
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	err := handle(ctx, job, out)
	lost := ctx.Err() != nil
	cancel()
	<-extended
	if lost {
		log.Printf("%s: the lease is lost", job.Data)
		return
	}
	answer := "+ACK"
	if err != nil { // it comes back, at its old place, as often as max_deliver of the queue allows
		reason, _ := json.Marshal(map[string]string{"reason": err.Error()}) // a string can always be marshalled
		answer = "-NAK " + string(reason)
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := settle(ctx, nc, job, answer); err != nil {
		log.Printf("%s: %s: %v", job.Data, answer, err) // without an answer it comes back when the lease is over
	}
}

// handle is the work itself. It should end soon after ctx.
func handle(_ context.Context, job *nats.Msg, out io.Writer) error {
	fmt.Fprintf(out, "%s (delivery %s)\n", job.Data, job.Header.Get("Pq-Deliveries"))
	if string(job.Data) == "call back" && job.Header.Get("Pq-Deliveries") == "1" {
		return errors.New("the line is busy")
	}
	return nil
}

// Digest leases up to 100 jobs that are there now, writes them in one go, and then acknowledges each.
func Digest(ctx context.Context, nc *nats.Conn, out io.Writer) error {
	jobs, err := fetch(ctx, nc, 100, "", `{"ack_wait":"30s","batch":100}`)
	if err != nil {
		return err
	}
	values := make([][]byte, len(jobs))
	for i, job := range jobs {
		values[i] = job.Data
	}
	fmt.Fprintf(out, "%s\n", bytes.Join(values, []byte(", ")))
	for _, job := range jobs {
		err = errors.Join(err, settle(ctx, nc, job, "+ACK"))
	}
	return err
}
