package codec

import (
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// An item takes no more of a transaction than docs/protocol.md says, so clients can compute how
// many fit into a batch.
func TestPushSizeIsAsDocumented(t *testing.T) {
	// The numbers of docs/protocol.md: bytes that an item counts for beside its own.
	const (
		each        = 1500
		record      = 750  // with an expiry or headers, and for each chunk of a long value
		due         = 1000 // with a delay or an expiry
		group       = 3500
		msgID       = 4000
		msgIDByte   = 19 // for each byte of the message id
		unique      = 900
		uniqueByte  = 5    // for each byte of the unique key
		joiner      = 3100 // beside a record and what is due
		members     = 7000 // of a joiner that is not in the batch, together
		longestName = 128
		prefixBytes = 12 // of keys beside the name of the queue; the usual roots take 6
	)

	l := &Layout{Prefix: strings.Repeat("p", longestName+prefixBytes)}
	key := strings.Repeat("k", 100)
	grouped := map[string][]string{GroupHeader: {"acme"}}

	for _, test := range []struct {
		what   string
		m      Message
		delays bool
		want   int
	}{
		{"nothing", Message{}, false, each},
		{"value", Message{Value: make([]byte, 50_000)}, false, each},
		{"headers", Message{Headers: map[string][]string{"A": {"b"}}}, false, each + record},
		// 500,000 bytes are above 90,000, and five times as many.
		{"large value", Message{Value: make([]byte, kv.MaxValueSize*5)}, false, each + 6*record},
		{"delay", Message{}, true, each + due},
		{"expiry", Message{Expires: time.Unix(1, 0)}, false, each + record + due},
		{"group", Message{Headers: grouped}, false, each + record + group},
		{"message id", Message{MsgID: key}, false, each + record + msgID + msgIDByte*len(key)},
		{"unique", Message{Unique: key}, false, each + record + unique + uniqueByte*len(key)},
		{"unique and delay", Message{Unique: key}, true,
			each + record + unique + uniqueByte*len(key) + due},
		{"joiner", Message{Join: 1}, false, each + record + due + joiner},
		{"member", Message{Joiner: &Joiner{Queue: strings.Repeat("q", longestName)}}, false,
			each + record + members},
	} {
		want := test.m.Size() + test.want

		if got := l.PushSize(&test.m, test.delays) + l.JoinSize(&test.m); got >= want {
			t.Errorf("%s: %d bytes, documented are less than %d", test.what, got, want)
		}
	}
}
