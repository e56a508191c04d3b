package leaf

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	// maxLine is the longest line of a leaf connection: 16 times a client's max_control_line of
	// 4096, as in nats-server, because of reply and queue groups.
	maxLine = 64 << 10
	// maxMessage is the largest max_payload that is believed.
	maxMessage = 64 << 20
	// addedHeaders is the room for headers that the server adds to a message.
	addedHeaders = 64 << 10
	// atOnce is how many bytes are allocated at once because a message says that it is so large.
	// More are allocated as they arrive.
	atOnce = 1 << 20
)

// frame is one thing that the server said.
type frame struct {
	op             string // its name; LMSG stands for HMSG too
	message        *Message
	subject, queue string // of LS+ and LS-
	text           []byte // behind any other op, until the next frame is read
}

// parser reads frames. A violation of the protocol ends it with an error.
type parser struct {
	in         *bufio.Reader
	maxPayload int // 0 before INFO
	fields     []string
}

func newParser(r io.Reader) *parser {
	return &parser{in: bufio.NewReaderSize(r, maxLine)}
}

// next reads a frame. The error is io.EOF if the connection ended between two frames.
func (p *parser) next() (frame, error) {
	line, err := p.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		const text = "%w: a line is longer than %d bytes: %s"
		return frame{}, fmt.Errorf(text, errProtocol, maxLine, snippet(line))
	case err != nil && len(line) > 0:
		return frame{}, fmt.Errorf("within a line, after %s: %w", snippet(line), cut(err))
	case err != nil:
		return frame{}, err
	}

	// The line ends with LF or, as NATS writes it, CR LF.
	line = bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'})
	name, args, _ := bytes.Cut(line, []byte{' '})
	switch string(name) {
	case "LMSG", "HMSG":
		return p.message(string(args), name[0] == 'H')
	case "LS+":
		return p.subscription("LS+", 3, string(args))
	case "LS-":
		return p.subscription("LS-", 2, string(args))
	case "PING", "PONG", "INFO", "-ERR":
		return frame{op: string(name), text: args}, nil
	}

	return frame{}, fmt.Errorf("%w: unknown line %s", errProtocol, snippet(line))
}

// snippet quotes the start of a line.
func snippet[T string | []byte](line T) string {
	const length = 64
	if len(line) > length {
		return fmt.Sprintf("%q...", line[:length])
	}
	return fmt.Sprintf("%q", line)
}

// cut returns the error of a connection that ended within a frame.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// split sets p.fields to the words of a line.
func (p *parser) split(line string) {
	p.fields = p.fields[:0]
	for word := range strings.SplitSeq(line, " ") {
		if word != "" {
			p.fields = append(p.fields, word)
		}
	}
}

// subscription parses "subject", or "subject group", which a weight follows after LS+. words counts
// the words of the second form.
func (p *parser) subscription(op string, words int, args string) (frame, error) {
	p.split(args)
	switch len(p.fields) {
	case 1:
		return frame{op: op, subject: p.fields[0]}, nil
	case words:
		return frame{op: op, subject: p.fields[0], queue: p.fields[1]}, nil
	}

	return frame{}, fmt.Errorf("%w: subscription %s", errProtocol, snippet(args))
}

// message parses one of these lines, and reads the header and the payload. HMSG has the size of the
// header before the whole size.
//
//	subject size
//	subject reply size
//	subject + reply group... size
//	subject | group... size
func (p *parser) message(args string, withHeader bool) (frame, error) {
	p.split(args)
	sizes := 1
	if withHeader {
		sizes = 2
	}
	n := len(p.fields) - sizes
	if n < 1 {
		return frame{}, fmt.Errorf("%w: message %s", errProtocol, snippet(args))
	}

	m := &Message{Subject: p.fields[0]}
	switch {
	case n == 2:
		m.Reply = p.fields[1]
	case n > 2 && p.fields[1] == "+":
		m.Reply = p.fields[2]
	case n > 2 && p.fields[1] != "|":
		return frame{}, fmt.Errorf("%w: message %s has no + or |", errProtocol, snippet(args))
	}

	// Check the sizes before the memory for them is taken.
	size, ok := parseSize(p.fields[len(p.fields)-1])
	header := 0
	if ok && withHeader {
		header, ok = parseSize(p.fields[n])
	}
	if !ok || header > size {
		return frame{}, fmt.Errorf("%w: sizes of message %s", errProtocol, snippet(args))
	}
	if size > p.maxPayload+addedHeaders {
		const text = "%w: message of %d bytes, max_payload is %d: %s"
		return frame{}, fmt.Errorf(text, errProtocol, size, p.maxPayload, snippet(args))
	}

	body, err := p.body(size)
	if err != nil {
		return frame{}, fmt.Errorf("within message %s: %w", snippet(args), err)
	}
	if header > 0 {
		m.Header = body[:header:header]
	}
	m.Payload = body[header:]
	return frame{op: "LMSG", message: m}, nil
}

func parseSize(text string) (int, bool) {
	size, err := strconv.ParseUint(text, 10, 31)
	return int(size), err == nil
}

// body reads size bytes and the end of the line.
func (p *parser) body(size int) ([]byte, error) {
	var body []byte
	var err error
	if size <= atOnce {
		body = make([]byte, size)
		_, err = io.ReadFull(p.in, body)
	} else {
		body, err = io.ReadAll(io.LimitReader(p.in, int64(size)))
	}

	var end [2]byte
	if err == nil {
		_, err = io.ReadFull(p.in, end[:])
	}
	if err == nil && end != [2]byte{'\r', '\n'} {
		err = fmt.Errorf("%w: %q instead of the end of the line", errProtocol, end)
	}
	return body, cut(err)
}
