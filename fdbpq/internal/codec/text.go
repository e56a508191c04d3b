package codec

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Longest texts that are kept, in bytes. The rest of a longer one is cut off.
const (
	MaxTermReason = 256
	MaxNakReason  = 1024
)

// CleanText makes a client's text fit for a header: valid UTF-8 without control characters, cut at
// n bytes.
func CleanText(text string, n int) string {
	text = strings.ToValidUTF8(cutText(text, n), "\uFFFD")
	return cutText(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text), n)
}

// cutText cuts a text at n bytes, or before the rune there.
func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for i := n; i > max(n-utf8.UTFMax, 0); i-- {
		if utf8.RuneStart(text[i]) {
			return text[:i]
		}
	}
	return text[:n] // not UTF-8
}

// textSize is the length of a header name or value in a tuple, where a zero byte takes two.
func textSize(text string) int { return len(text) + strings.Count(text, "\x00") + 2 }
