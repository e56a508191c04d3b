// Package input reads the values of items, and says what became of lines.
package input

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// Value reads all of in, but no more than the server takes.
func Value(in io.Reader, max int64) ([]byte, error) {
	value, err := io.ReadAll(io.LimitReader(in, max+1))
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	if int64(len(value)) > max {
		return nil, fmt.Errorf("standard input: %w", TooLarge(max))
	}
	return value, nil
}

// TooLarge is the error of a value that NATS does not carry.
func TooLarge(max int64) error {
	return fmt.Errorf("%w: the NATS server takes %d bytes at most, headers included",
		client.ErrTooLarge, max)
}

// Lines reads lines of limited length, which only a line feed ends. Unlike a bufio.Scanner it
// returns no partial line before a read error.
type Lines struct {
	in     *bufio.Reader
	number int // of the last line returned
	max    int
}

func NewLines(in io.Reader, max int) *Lines {
	return &Lines{in: bufio.NewReaderSize(in, max+len("\n")), max: max}
}

// Next returns the next line, which the caller owns, and io.EOF after the last.
func (l *Lines) Next() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	switch {
	case err == nil, err == io.EOF && len(line) > 0:
	case err == io.EOF:
		return nil, io.EOF
	case !errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("standard input, after line %d: %w", l.number, err)
	}

	line = bytes.TrimSuffix(line, []byte("\n"))
	if len(line) > l.max {
		return nil, fmt.Errorf("line %d: %w", l.number+1, TooLarge(int64(l.max)))
	}

	l.number++
	return bytes.Clone(line), nil
}

// NextBatch returns the next line and those behind it that have been read already, up to half of
// what the server takes in a message, unless the first alone is longer.
func (l *Lines) NextBatch() ([][]byte, error) {
	line, err := l.Next()
	if err != nil {
		return nil, err
	}

	batch, size := [][]byte{line}, len(line)
	for len(batch) < subjects.MaxFrames {
		text, _ := l.in.Peek(l.in.Buffered()) // there are as many bytes
		length := bytes.IndexByte(text, '\n')
		if size += length; length < 0 || size > l.max/2 {
			break
		}
		if line, err = l.Next(); err != nil {
			return nil, err
		}
		batch = append(batch, line)
	}

	return batch, nil
}

// Report says, in a form that scripts can read, which lines are in the queue and how to print the
// others, when no push is under way: the first done lines are there, and failed has the errors of
// those after them, nil for a line that is there too.
func Report(done int, failed []error) string {
	var in, unsure, out []span
	if done > 0 {
		in = []span{{1, done}}
	}

	for i, err := range failed {
		list := &out
		switch {
		case err == nil:
			list = &in
		case errors.Is(err, client.ErrUnknownOutcome):
			list = &unsure
		}
		*list = add(*list, done+1+i)
	}

	out = add(out, done+len(failed)+1) // and all that was not read
	out[len(out)-1].last = 0

	text := ""
	for _, part := range []struct {
		words, separator string
		spans            []span
		format           func(span) string
		end              string
	}{
		{"in the queue: ", ",", in, span.String, ""},
		{"that may be in the queue: ", ",", unsure, span.String, ""},
		{"not in the queue: sed -n '", ";", out, span.sed, "'"},
	} {
		if len(part.spans) == 0 {
			continue
		}
		texts := make([]string, len(part.spans))
		for i, s := range part.spans {
			texts[i] = part.format(s)
		}
		text += "\npq: lines " + part.words + strings.Join(texts, part.separator) + part.end
	}

	return text
}

// span is a range of lines. If last is 0 it has no end.
type span struct{ first, last int }

// add adds the line behind the others.
func add(all []span, n int) []span {
	if last := len(all) - 1; last >= 0 && all[last].last == n-1 {
		all[last].last = n
		return all
	}
	return append(all, span{n, n})
}

func (s span) String() string {
	if s.first == s.last {
		return fmt.Sprint(s.first)
	}
	return fmt.Sprintf("%d-%d", s.first, s.last)
}

// sed returns the command of sed that prints the lines.
func (s span) sed() string {
	switch s.last {
	case s.first:
		return fmt.Sprintf("%dp", s.first)
	case 0:
		return fmt.Sprintf("%d,$p", s.first)
	default:
		return fmt.Sprintf("%d,%dp", s.first, s.last)
	}
}
