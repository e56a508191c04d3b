package subjects

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// A push names one group of up to 128 bytes, and a weight only beside a group.
func TestGroupOfPush(t *testing.T) {
	group := func(values ...string) http.Header { return http.Header{HeaderGroup: values} }
	weighted := func(h http.Header, values ...string) http.Header {
		h[HeaderWeight] = values
		return h
	}

	for _, test := range []struct {
		h      http.Header
		weight int
		is     error
		text   string
	}{
		{nil, 0, nil, ""},
		{group(strings.Repeat("a", 128)), 0, nil, ""},
		{weighted(group("a b"), "1"), 1, nil, ""},
		{weighted(group("a"), "100"), 100, nil, ""},
		{group(strings.Repeat("a", 128) + " \t"), 0, nil, ""},
		{group(""), 0, ErrGroup, "bad Pq-Group: want 1 to 128 bytes of UTF-8 in one line, once"},
		{group(strings.Repeat("a", 129)), 0, ErrGroup, "1 to 128 bytes"},
		{group("M\xfcller"), 0, ErrGroup, "UTF-8"},
		{group("a\nb"), 0, ErrGroup, "one line"},
		{group("a\rb"), 0, ErrGroup, "one line"},
		{group("a", "a"), 0, ErrGroup, "once"},
		{group(), 0, ErrGroup, "once"},
		{
			weighted(group("a"), "0"), 0, ErrWeight,
			`bad Pq-Weight "0": want an integer from 1 to 100, beside Pq-Group`,
		},
		{weighted(group("a"), "101"), 0, ErrWeight, `"101"`},
		{weighted(group("a"), "3.5"), 0, ErrWeight, `"3.5"`},
		{weighted(group("a"), "3", "3"), 0, ErrWeight, `"3, 3"`},
		{weighted(http.Header{}, "3"), 0, ErrWeight, "beside Pq-Group"},
	} {
		weight, err := GroupOfPush(test.h)
		if !errors.Is(err, test.is) || err != nil && !strings.Contains(err.Error(), test.text) ||
			err == nil && weight != test.weight {
			t.Errorf("%v: %d, %v: want %d, %q", test.h, weight, err, test.weight, test.text)
		}
	}

	// Replies have no blanks around a value, so they must not make another group.
	h := group(" a\t ")

	if _, err := GroupOfPush(h); err != nil || h.Get(HeaderGroup) != "a" {
		t.Errorf("the group is %q, %v", h, err)
	}
}
