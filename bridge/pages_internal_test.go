package bridge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Errors over HTTP have the same texts as replies, without the names of packages.
func TestHTTPErrors(t *testing.T) {
	for _, m := range []struct {
		err  error
		code int
		text string
	}{
		{fdbpq.ErrNoRoom, 503, "no room"},
		{fmt.Errorf("%w: %w", ErrUnavailable, kv.ErrUnavailable), 503, "the store is unavailable"},
		{fmt.Errorf("%w: item 3: %w", ErrBadRequest, fdbpq.ErrOp), 400, "item 3: invalid operation"},
	} {
		code, text := pageFailure(m.err)
		if code != m.code || strings.Contains(text, "fdbpq:") || strings.Contains(text, "kv:") || !strings.Contains(text, m.text) {
			t.Errorf("%v: %d %s", m.err, code, text)
		}
	}
}
