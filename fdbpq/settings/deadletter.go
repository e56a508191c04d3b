package settings

import (
	"strings"
	"unicode/utf8"
)

// MaxQueueName is the longest queue name, in bytes.
const MaxQueueName = 128

// DeadSuffix ends the names of dead-letter queues that no setting names.
const DeadSuffix = "-dead"

// DeadLetterQueue returns the name of the dead-letter queue of the queue with this name: DeadLetter,
// or the name with "-dead" appended. A long name gets that in place of its end, as often as it takes
// to make another name.
func (s *Settings) DeadLetterQueue(name string) string {
	if s.DeadLetter != "" && s.DeadLetter != name {
		return s.DeadLetter
	}

	for suffix := DeadSuffix; len(suffix) < MaxQueueName; suffix += DeadSuffix {
		if dead := Cut(name, MaxQueueName-len(suffix)) + suffix; dead != name {
			return dead
		}
	}
	return strings.TrimPrefix(DeadSuffix, "-") // name is little else than suffixes
}

// Cut cuts a text at n bytes, or before the rune there.
func Cut(text string, n int) string {
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
