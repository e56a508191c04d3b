package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pqbridge/pqbridge/subjects"
)

// Returns makes a Work of a function that returns the result of the job. If the error is nil, even
// an empty value is a result. Its type is not said: see [Job.SetResult].
func Returns(work func(ctx context.Context, job *Job) ([]byte, error)) Work {
	return func(ctx context.Context, job *Job) error {
		value, err := work(ctx, job)
		if err == nil {
			job.SetResult(value, "")
		}
		return err
	}
}

// Codec turns what a [Function] takes and returns into bytes and back.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
	// ContentType is the type of the bytes, such as "application/json".
	ContentType() string
}

// Function is a kind of job that takes a value of one type and returns one of another. Declare it
// where both its callers and its workers see it:
//
//	var Resize = client.Function[Image, Thumbnail]{Type: "resize"}
//
//	thumbnail, err := Resize.Call(ctx, jobs, 5, Image{Name: "cat.png"})
//
//	mux.Handle(Resize.Type, Resize.Work(resize))
//
// The zero value is ready to use: JSON, by package encoding/json, and no type.
type Function[In, Out any] struct {
	// Codec encodes the values; nil means JSON.
	Codec Codec
	// Type is the type of the jobs, by which a [Mux] finds their Work; "" is none.
	Type string
}

// Work returns the Work that does these jobs. A job whose value the codec cannot read becomes a
// dead letter at once, with the codec's error as its reason: to try again cannot help.
func (f Function[In, Out]) Work(
	work func(ctx context.Context, job *Job, in In) (Out, error),
) Work {
	return func(ctx context.Context, job *Job) error {
		var in In
		if err := f.codec().Unmarshal(job.Value, &in); err != nil {
			return Drop(fmt.Sprintf("the value is not a %T: %v", in, err))
		}

		out, err := work(ctx, job, in)
		if err != nil {
			return err
		}

		value, err := f.codec().Marshal(out)
		if err != nil {
			return fmt.Errorf("the result cannot be encoded: %w", err)
		}
		job.SetResult(value, f.codec().ContentType())
		return nil
	}
}

// Message returns the message of a job, for any way to push it. Its headers have the type and the
// content type.
func (f Function[In, Out]) Message(in In) (Message, error) {
	value, err := f.codec().Marshal(in)
	if err != nil {
		return Message{}, badRequest("the value cannot be encoded: %v", err)
	}

	options := []PushOption{header(subjects.HeaderContentType, f.codec().ContentType())}
	if f.Type != "" {
		options = append(options, Type(f.Type))
	}
	return Message{Value: value}.With(options...), nil
}

// Call pushes a job and returns its result: see [Queue.Call].
//
// Errors: [ErrBadRequest] for a value that the codec cannot write, its own for a result that it
// cannot read, and the errors of Queue.Call.
func (f Function[In, Out]) Call(ctx context.Context, q *Queue, priority int64, in In,
	options ...PushOption) (Out, error) {
	var out, none Out
	m, err := f.Message(in)
	if err != nil {
		return none, err
	}

	r, err := q.CallMsg(ctx, priority, m, options...)
	if err != nil {
		return none, err
	}
	if err := f.codec().Unmarshal(r.Value, &out); err != nil {
		return none, fmt.Errorf("the result of job %s is not a %T: %w", r.ID, out, err)
	}
	return out, nil
}

func (f Function[In, Out]) codec() Codec {
	if f.Codec == nil {
		return jsonCodec{}
	}
	return f.Codec
}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }
func (jsonCodec) ContentType() string                { return "application/json" }
