package codec

import (
	"strings"
	"unicode"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// Longest texts that are kept, in bytes. The rest of a longer one is cut off.
const (
	MaxTermReason = 256
	MaxNakReason  = 1024
)

// CleanText makes a client's text fit for a header: valid UTF-8 without control characters, cut at
// n bytes.
func CleanText(text string, n int) string {
	text = strings.ToValidUTF8(settings.Cut(text, n), "\uFFFD")
	return settings.Cut(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text), n)
}

// textSize is the length of a header name or value in a tuple, where a zero byte takes two.
func textSize(text string) int { return len(text) + strings.Count(text, "\x00") + 2 }
