package subjects

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxKey is the longest message id and unique key, in bytes.
const MaxKey = 512

// ErrKey: a push has a message id or unique key that is not one.
var ErrKey = errors.New("bad key")

// KeysOfPush returns what the headers of a push say in HeaderMsgID and HeaderUnique, "" for none.
// Errors wrap [ErrKey].
func KeysOfPush(h map[string][]string) (msgID, unique string, err error) {
	if msgID, err = key(h, HeaderMsgID); err == nil {
		unique, err = key(h, HeaderUnique)
	}
	if err != nil {
		return "", "", err
	}
	for name := range h {
		// Streams ignore it, but the author relies on it.
		if strings.EqualFold(name, HeaderMsgID) && name != HeaderMsgID {
			return "", "", fmt.Errorf("%w: header %s: want it spelled %s", ErrKey, quote(name), HeaderMsgID)
		}
	}
	return msgID, unique, nil
}

func key(h map[string][]string, name string) (string, error) {
	values, given := h[name]
	switch {
	case !given:
		return "", nil
	case len(values) != 1:
		return "", fmt.Errorf("%w: header %s is given %d times: want one", ErrKey, name, len(values))
	case values[0] == "" || len(values[0]) > MaxKey:
		return "", fmt.Errorf("%w: header %s has %d bytes: want 1 to %d", ErrKey, name, len(values[0]), MaxKey)
	}
	return values[0], nil
}

// AppendDuplicate makes the reply to a push, with which b ends, that to a duplicate: it gets the
// member "duplicate":true.
func AppendDuplicate(b []byte) []byte { return append(b[:len(b)-1], `,"duplicate":true}`...) }

// AppendDuplicates adds the indexes of the items that were not pushed to the reply to a batch of
// pushes, with which b ends.
func AppendDuplicates(b []byte, indexes []int) []byte {
	if len(indexes) == 0 {
		return b
	}
	b = append(b[:len(b)-1], `,"duplicates":[`...)
	return append(appendList(b, indexes), "]}"...)
}

// appendList appends numbers with commas in between.
func appendList(b []byte, list []int) []byte {
	for i, n := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return b
}

// MaxDuplicates is how much AppendDuplicates adds at most for a batch of n pushes.
func MaxDuplicates(n int) int { return len(`,"duplicates":[]`) + n*len("4095,") }
