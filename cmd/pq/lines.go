package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"
)

// pushLines pushes the lines of in, without their line ends, each in a copy of
// m, and stops at the first that fails, or when ctx ends. Then it waits for the
// pushes under way, and the error says which lines are in the queue.
func (p *push) pushLines(ctx context.Context, c *client, m nats.Msg, in io.Reader, out io.Writer) error {
	lines := newLineReader(in, int(c.nc.MaxPayload()))
	var o outcomes
	group, going := errgroup.WithContext(ctx)
	group.SetLimit(int(p.parallel))
	for {
		value, err := await(going, lines.next)
		if err != nil {
			o.ended = err
			break
		}
		o.read++
		number, line := o.read, m
		line.Data = value
		group.Go(func() error {
			if going.Err() != nil { // while this line waited for its turn
				o.failed(number, going.Err())
				return nil
			}
			stored, err := c.push(&line)
			if err != nil {
				o.failed(number, err)
			} else {
				stored.Line = number
				err = p.print(out, stored)
			}
			if err != nil {
				return fmt.Errorf("line %d: %w", number, err)
			}
			return nil
		})
	}
	err := group.Wait()
	if err == nil && o.ended != io.EOF {
		err = o.ended
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, o.report())
	}
	return nil
}

// lineReader reads lines of limited length. Unlike a bufio.Scanner it does not
// take the part of a line before a read error for a line.
type lineReader struct {
	in     *bufio.Reader
	number int // of the last line returned
	max    int
}

func newLineReader(in io.Reader, max int) *lineReader {
	const lineEnd = 2
	return &lineReader{in: bufio.NewReaderSize(in, max+lineEnd), max: max}
}

// next returns the next line, which the caller owns, and io.EOF after the last.
func (l *lineReader) next() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	switch {
	case err == nil, err == io.EOF && len(line) > 0:
	case err == io.EOF:
		return nil, io.EOF
	case !errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("standard input, after line %d: %w", l.number, err)
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if len(line) > l.max {
		return nil, fmt.Errorf("line %d is too long: %w", l.number+1, tooLarge(l.max))
	}
	l.number++
	return bytes.Clone(line), nil
}

// outcomes is what became of the lines that were read.
type outcomes struct {
	read  int   // number of lines
	ended error // why no more were read

	mu              sync.Mutex
	refused, unsure []int // numbers of the lines that are not in the queue, or may not be
}

// failed notes that the push of a line failed.
func (o *outcomes) failed(number int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.As(err, new(unknownError)) {
		o.unsure = append(o.unsure, number)
	} else {
		o.refused = append(o.refused, number)
	}
}

// report says, in lines that scripts can read, which lines are in the queue, and
// how to get at those that are not. No push is under way any more.
func (o *outcomes) report() string {
	slices.Sort(o.refused)
	slices.Sort(o.unsure)
	in := gaps(slices.Sorted(slices.Values(slices.Concat(o.refused, o.unsure))), o.read)
	out := spans(o.refused)
	if o.ended != io.EOF { // there may be more lines
		out = spans(append(o.refused, o.read+1))
		out[len(out)-1].last = 0
	}
	var b strings.Builder
	for _, part := range []struct {
		words, separator string
		spans            []span
		format           func(span) string
		end              string
	}{
		{"in the queue: ", ",", in, span.String, ""},
		{"that may be in the queue: ", ",", spans(o.unsure), span.String, ""},
		{"not in the queue: sed -n '", ";", out, span.sed, "'"},
	} {
		if len(part.spans) == 0 {
			continue
		}
		texts := make([]string, len(part.spans))
		for i, s := range part.spans {
			texts[i] = part.format(s)
		}
		b.WriteString("\npq: lines " + part.words + strings.Join(texts, part.separator) + part.end)
	}
	return b.String()
}

// span is a range of lines. If last is 0 it has no end.
type span struct{ first, last int }

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

// spans puts numbers, which are sorted, together.
func spans(numbers []int) []span {
	var all []span
	for _, n := range numbers {
		if last := len(all) - 1; last >= 0 && all[last].last == n-1 {
			all[last].last = n
		} else {
			all = append(all, span{n, n})
		}
	}
	return all
}

// gaps returns what of 1 to last is not among numbers, which are sorted.
func gaps(numbers []int, last int) []span {
	var all []span
	next := 1
	for _, n := range append(numbers, last+1) {
		if next < n {
			all = append(all, span{next, n - 1})
		}
		next = n + 1
	}
	return all
}
