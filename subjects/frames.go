package subjects

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
)

// Batches of pushes, and replies with HeaderFrames, carry one frame after the other. A frame is
//
//	priority            int64, big-endian; 0 in a FIFO queue
//	length of headers   uint32, big-endian
//	length of value     uint32, big-endian
//	headers             as a NATS message has them, or nothing
//	value

// MaxFrames is the most items that one message can push.
const MaxFrames = 4096

// frameStart is the length of what comes before the headers of a frame.
const frameStart = 8 + 4 + 4

var (
	// ErrFrame: a payload cannot be split into its frames.
	ErrFrame = errors.New("bad frames")
	// ErrTooManyFrames: a payload has more than MaxFrames frames.
	ErrTooManyFrames = errors.New("too many frames")
)

// Frame is one item of a batch of pushes, or of a reply with [HeaderFrames].
type Frame struct {
	// Priority is 0 in a FIFO queue.
	Priority int64
	// Headers is a header block as in a NATS message: see [AppendHeaders]. It may be empty.
	Headers []byte
	// Value is the payload. It may be empty.
	Value []byte
}

// Size is the number of bytes that AppendFrame appends.
func (f *Frame) Size() int { return frameStart + len(f.Headers) + len(f.Value) }

// AppendFrame appends a frame to b. Headers and Value must be shorter than 4 GiB.
func AppendFrame(b []byte, f Frame) []byte {
	b = slices.Grow(b, f.Size())
	b = binary.BigEndian.AppendUint64(b, uint64(f.Priority))
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Headers)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Value)))
	b = append(b, f.Headers...)
	return append(b, f.Value...)
}

// AppendHeaders appends the block that NATS's Go client sends for these headers, or nothing if
// there are none. Errors: see [CheckHeaders].
func AppendHeaders(b []byte, h map[string][]string) ([]byte, error) {
	if len(h) == 0 {
		return b, nil
	}
	if err := CheckHeaders(h); err != nil {
		return nil, err
	}
	b, err := AppendHeaderLines(append(b, "NATS/1.0\r\n"...), h)
	if err != nil {
		return nil, err
	}
	return append(b, "\r\n"...), nil
}

// AppendHeaderLines appends the lines of a block for these headers, without its beginning and end.
// A line break in a value becomes a space, for items that other programs have stored. Errors: as
// for [CheckHeaders], but for such a value.
func AppendHeaderLines(b []byte, h map[string][]string) ([]byte, error) {
	if err := checkNamesAndKeys(h); err != nil {
		return nil, err
	}

	for name, values := range h {
		for _, value := range values {
			b = AppendHeaderLine(b, name, oneLine.Replace(textproto.TrimString(value)))
		}
	}
	return b, nil
}

// AppendHeaderLine appends one line of a block. It checks neither the name nor the value, which
// must not have line breaks.
func AppendHeaderLine[T string | []byte](b []byte, name string, value T) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// CheckHeaders returns an error that names a header that NATS cannot carry: a name that is not
// valid, or a value with a line break. A message id, unique key or group must not have spaces at
// either end: NATS would change others, and two that differ could become the same.
func CheckHeaders(h map[string][]string) error {
	if err := checkNamesAndKeys(h); err != nil {
		return err
	}
	for name, values := range h {
		for _, value := range values {
			if strings.ContainsAny(value, "\r\n") {
				return fmt.Errorf("header %s: %s: want one line", name, quote(value))
			}
		}
	}
	return nil
}

// checkNamesAndKeys is CheckHeaders for all that would not be what the pusher meant.
func checkNamesAndKeys(h map[string][]string) error {
	for name := range h {
		if !ValidHeaderName(name) {
			return fmt.Errorf("header %s: want a name of letters, digits and any of %s",
				quote(name), HeaderPunctuation)
		}
	}

	for _, name := range []string{HeaderMsgID, HeaderUnique, HeaderGroup} {
		for _, value := range h[name] {
			if textproto.TrimString(value) != value || strings.ContainsAny(value, "\r\n") {
				return fmt.Errorf("header %s: %s: want one line without spaces at either end",
					name, quote(value))
			}
		}
	}
	return nil
}

var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// ParseFrames splits a payload into its frames, which share its memory. Errors wrap [ErrFrame] or
// [ErrTooManyFrames]. They number frames from 0, like the ids in the reply.
func ParseFrames(payload []byte) (frames []Frame, err error) {
	for rest := payload; len(rest) > 0; {
		n := len(frames)
		if n == MaxFrames {
			return nil, fmt.Errorf("%w: want at most %d: send several", ErrTooManyFrames,
				MaxFrames)
		}
		if len(rest) < frameStart {
			return nil, fmt.Errorf("%w: frame %d ends after %d bytes: want %d bytes for its "+
				"priority and lengths, then its headers and value",
				ErrFrame, n, len(rest), frameStart)
		}

		const tooLong = "of %d bytes according to its lengths, but only %d bytes are left"
		priority := int64(binary.BigEndian.Uint64(rest))
		headers := uint64(binary.BigEndian.Uint32(rest[8:]))
		value := uint64(binary.BigEndian.Uint32(rest[12:]))
		rest = rest[frameStart:]
		if left := uint64(len(rest)); headers > left {
			return nil, fmt.Errorf("%w: frame %d has headers "+tooLong, ErrFrame, n, headers, left)
		} else if value > left-headers {
			return nil, fmt.Errorf("%w: frame %d has a value "+tooLong,
				ErrFrame, n, value, left-headers)
		}

		end := headers + value
		frames = append(frames, Frame{priority, rest[:headers:headers], rest[headers:end:end]})
		rest = rest[end:]
	}

	if len(frames) == 0 {
		return nil, fmt.Errorf("%w: there are none: want 1 to %d", ErrFrame, MaxFrames)
	}
	return frames, nil
}
