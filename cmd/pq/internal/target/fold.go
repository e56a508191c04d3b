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

	// status finds what may be a status of HTTP or of a process: three digits from 100 to 599 at
	// the very beginning, or after "status", "code" or "HTTP".
	status = regexp.MustCompile(`^[1-5]\d\d|(?i)(?:^|[^\pL\pN])(?:status|code|http)+` +
		`(?:/[\d.*]+ | error)?[^\pL\pN]{0,4}[1-5]\d\d`)
	// notStatus is what follows other numbers: larger ones, addresses, ids, times and durations.
	notStatus = regexp.MustCompile(`^(?:[\pL\pN_]|[-.:,/]\d|` +
		` (?:[nuµm]?s|min|h|seconds|minutes|hours)\b)`)
)

// kept is added to the digits of a status, so that they are no digits until all others are folded.
// No text has what comes of it, because that cannot be printed.
const kept = '\uE000'

// Fold returns the text of an error without what differs from one failure to the next: "*" stands
// for a number, an id and an address, and one blank for blanks and what cannot be printed. Short
// numbers in words, such as x509 and http2, and what looks like a status stay.
//
//	dial tcp 10.0.0.7:5432: connection refused     dial tcp *: connection refused
//	order-4711 of bob@example.com is 3 days old    order-* of * is * days old
//	unexpected status 503 after 250 ms             unexpected status 503 after * ms
func Fold(text string) string {
	fields := strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
	text = parts.ReplaceAllStringFunc(hideStatus(strings.Join(fields, " ")), foldPart)
	return strings.Map(func(r rune) rune {
		if r >= kept+'0' && r <= kept+'9' {
			return r - kept
		}
		return r
	}, runs.ReplaceAllString(text, folded))
}

// hideStatus adds kept to the digits of each status.
func hideStatus(text string) string {
	var hidden strings.Builder
	done := 0
	for _, at := range status.FindAllStringIndex(text, -1) {
		if notStatus.MatchString(text[at[1]:]) {
			continue
		}
		begin := at[1] - len("503")
		hidden.WriteString(text[done:begin])
		for _, digit := range text[begin:at[1]] {
			hidden.WriteRune(digit + kept)
		}
		done = at[1]
	}
	return hidden.String() + text[done:]
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
