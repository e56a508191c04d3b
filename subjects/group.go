package subjects

import (
	"errors"
	"fmt"
	"net/textproto"
	"strconv"
	"strings"
)

// MaxGroup is the longest group, in bytes, and MaxWeight the largest weight of a push.
const (
	MaxGroup  = 128
	MaxWeight = 100
)

// What can be wrong with the group of a push.
var (
	ErrGroup  = errors.New("bad " + HeaderGroup)
	ErrWeight = errors.New("bad " + HeaderWeight)
)

// GroupOfPush checks what the headers of a push say in HeaderGroup, removes blanks around it, and returns the weight in
// HeaderWeight, 0 for none. Errors wrap [ErrGroup] or [ErrWeight].
func GroupOfPush(h map[string][]string) (weight int, err error) {
	groups, given := h[HeaderGroup]
	if len(groups) == 1 { // replies have no blanks around a value either
		groups[0] = textproto.TrimString(groups[0])
	}
	if given && (len(groups) != 1 || groups[0] == "" || len(groups[0]) > MaxGroup || strings.ContainsAny(groups[0], "\r\n")) {
		return 0, fmt.Errorf("%w: want 1 to %d bytes in one line, once", ErrGroup, MaxGroup)
	}

	if weights, weighted := h[HeaderWeight]; weighted {
		text := strings.Join(weights, ", ")
		weight, err = strconv.Atoi(text)
		if err != nil || strconv.Itoa(weight) != text || weight < 1 || weight > MaxWeight || !given {
			return 0, fmt.Errorf("%w %s: want an integer from 1 to %d, beside %s", ErrWeight, quote(text), MaxWeight, HeaderGroup)
		}
	}
	return weight, nil
}
