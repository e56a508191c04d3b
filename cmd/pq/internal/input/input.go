// Package input reads the values of items, and says what became of lines.
package input

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
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
	longer error
}

// NewLines returns the lines of in. longer is the error of one with more than max bytes.
func NewLines(in io.Reader, max int, longer error) *Lines {
	return &Lines{in: bufio.NewReaderSize(in, max+len("\n")), max: max, longer: longer}
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
		return nil, fmt.Errorf("line %d: %w", l.number+1, l.longer)
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
	in, unsure, out := lines{}, lines{}, lines{}
	if done > 0 {
		in.add(1, done)
	}
	for i, err := range failed {
		line := done + 1 + i
		switch {
		case err == nil:
			in.add(line, line)
		case errors.Is(err, client.ErrUnknownOutcome):
			unsure.add(line, line)
		default:
			out.add(line, line)
		}
	}
	out.add(done+len(failed)+1, toEnd)

	text := ""
	if len(in) > 0 {
		text += "\npq: lines in the queue: " + in.join("-", "", ",")
	}
	if len(unsure) > 0 {
		text += "\npq: lines that may be in the queue: " + unsure.join("-", "", ",")
	}
	return text + "\npq: lines not in the queue: sed -n '" + out.join(",", "p", ";") + "'"
}

// toEnd as the last line of a range means the last line of the input.
const toEnd = math.MaxInt

// lines are ranges of lines, each the first and the last.
type lines [][2]int

// add adds a range behind the others.
func (l *lines) add(first, last int) {
	if n := len(*l) - 1; n >= 0 && (*l)[n][1] == first-1 {
		(*l)[n][1] = last
		return
	}
	*l = append(*l, [2]int{first, last})
}

// join writes each range with a text between its ends and one after it.
func (l lines) join(to, end, separator string) string {
	var texts []string
	for _, r := range l {
		text := strconv.Itoa(r[0])
		switch r[1] {
		case r[0]:
		case toEnd:
			text += to + "$"
		default:
			text += to + strconv.Itoa(r[1])
		}
		texts = append(texts, text+end)
	}
	return strings.Join(texts, separator)
}
