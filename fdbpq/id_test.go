package fdbpq_test

import (
	"encoding/base64"
	"math"
	"regexp"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
)

func TestIDTextRoundTrip(t *testing.T) {
	token := regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	for _, priority := range extremes {
		for _, count := range extremes {
			id := fdbpq.ID{Priority: priority, Count: count}
			for i := range id.Random {
				id.Random[i] = byte(255 - i)
			}
			got, err := fdbpq.ParseID(id.String())
			if err != nil || got != id || !token.MatchString(id.String()) {
				t.Errorf("%+v is %q, which is read as %+v (error %v)", id, id, got, err)
			}
		}
	}
}

var extremes = []int64{math.MinInt64, math.MinInt64 + 1, -1 << 32, -256, -255, -1, 0, 1, 255, 256, 1 << 40, math.MaxInt64 - 1, math.MaxInt64}

func TestParseIDRefuses(t *testing.T) {
	good := fdbpq.ID{Priority: 5, Count: 7}.String()
	encode := base64.RawURLEncoding.EncodeToString
	for name, text := range map[string]string{
		"empty":               "",
		"cut":                 good[:len(good)-4],
		"longer":              good + "AAAA",
		"a line end":          good[:8] + "\n" + good[8:],
		"a line end behind":   good + "\r\n",
		"a blank":             good + " ",
		"padding":             good + "=",
		"the other alphabet":  "+" + good[1:],
		"a long integer":      encode(append([]byte{0x16, 0, 5, 0x14}, make([]byte, 20)...)),
		"an integer too long": encode(append([]byte{0x1d, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0x14}, make([]byte, 20)...)),
		"no integers":         encode(make([]byte, 22)),
	} {
		if id, err := fdbpq.ParseID(text); err == nil {
			t.Errorf("%s: %q is read as %+v", name, text, id)
		} else {
			wantError(t, err, fdbpq.ErrID)
		}
	}
}

func FuzzParseID(f *testing.F) {
	for _, n := range extremes {
		f.Add(fdbpq.ID{Priority: n, Count: n, Random: [20]byte{1, 2, 255}}.String())
	}
	f.Add("not an id")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := fdbpq.ParseID(text)
		if err != nil {
			wantError(t, err, fdbpq.ErrID)
			return
		}
		if again := id.String(); again != text {
			t.Errorf("%q is read as %+v, which is written as %q", text, id, again)
		}
	})
}
