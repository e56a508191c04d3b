package target

import (
	"regexp"
	"strings"
	"unicode"
)

// folded stands for what Fold leaves out.
const folded = "*"

var (
	// parts finds what may be an address for mail, an IPv6 address or a time of day, or a word.
	parts = regexp.MustCompile(
		`[\w.+-]+@[\w.-]+|[0-9A-Fa-f]*(?::[0-9A-Fa-f]*)+:[0-9A-Fa-f]+Z?|[\p{L}\p{N}_-]+`)
	// hex is an id in hexadecimal digits.
	hex = regexp.MustCompile(`^[0-9A-Fa-f-]{8,}$`)
	// inWord is a number in a word: after a hyphen or underscore, or of four digits or more.
	inWord = regexp.MustCompile(`([-_])\d+|\d{4,}`)
	// runs are numbers with nothing between them but the punctuation of addresses and dates.
	runs = regexp.MustCompile(`\*(?:[-.:,/_]?\*)+`)
)

// Fold returns the text of an error without what differs from one failure to the next: "*" stands
// for a number, an id and an address, and one blank for blanks and what cannot be printed. Short
// numbers in words, such as x509 and http2, stay.
//
//	dial tcp 10.0.0.7:5432: connection refused     dial tcp *: connection refused
//	order-4711 of bob@example.com is 3 days old    order-* of * is * days old
func Fold(text string) string {
	fields := strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
	text = parts.ReplaceAllStringFunc(strings.Join(fields, " "), foldPart)
	return runs.ReplaceAllString(text, folded)
}

func foldPart(part string) string {
	digit := strings.IndexFunc(part, unicode.IsDigit)
	switch {
	case strings.Contains(part, "@"):
		return folded
	case digit < 0:
		return part
	case digit == 0, strings.Contains(part, ":"), hex.MatchString(part), len(part) >= 16:
		return folded
	}
	return inWord.ReplaceAllString(part, "${1}"+folded)
}
