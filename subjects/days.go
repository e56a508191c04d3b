package subjects

import (
	"regexp"
	"strconv"
)

var (
	withDays = regexp.MustCompile(`^-?([0-9]+(\.[0-9]+)?(d|h|m|s|ms|us|µs|ns))+$`)
	days     = regexp.MustCompile(`[0-9]+(\.[0-9]+)?d`)
)

// Days writes the days of a duration that somebody has typed as hours; the wire has no days.
// "7d" becomes "168h", and "1d12h" "24h12h". Any other text stays as it is.
func Days(text string) string {
	if len(text) > 100 || !withDays.MatchString(text) {
		return text
	}
	return days.ReplaceAllStringFunc(text, func(part string) string {
		n, _ := strconv.ParseFloat(part[:len(part)-1], 64) // days has only digits
		return strconv.FormatFloat(24*n, 'f', -1, 64) + "h"
	})
}
