package codec

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// GroupHeader is the header that names the group of a message. It is stored as any other header.
const GroupHeader = "Pq-Group"

const (
	MaxGroup  = 128
	MaxWeight = 100
)

// Group returns the group of the message, "" if it has none.
func (m Message) Group() string {
	if values := m.Headers[GroupHeader]; len(values) == 1 && CheckGroup(values) == nil {
		return values[0]
	}
	return ""
}

// CheckGroup returns an error unless the values of GroupHeader, if there are any, name a group.
func CheckGroup(values []string) error {
	if values == nil {
		return nil
	}
	if len(values) != 1 || len(values[0]) < 1 || len(values[0]) > MaxGroup || strings.ContainsAny(values[0], "\r\n") {
		return fmt.Errorf("%w: bad %s: want 1 to %d bytes in one line, once", ErrOp, GroupHeader, MaxGroup)
	}
	return nil
}

// GroupHash is what ids and keys have of a group: 40 bits of the SHA-256 of its name.
type GroupHash int64

const (
	// NotIndexed is for items whose id says nothing about a group.
	NotIndexed GroupHash = -1
	// NoGroup is for items without a group in queues that limit groups: the search for items that may
	// be served finds them under it.
	NoGroup GroupHash = 0
)

// HashGroup returns the hash of a group. It is never NoGroup.
func HashGroup(group string) GroupHash {
	sum := sha256.Sum256([]byte(group))
	var hash GroupHash
	for _, b := range sum[:groupSize] {
		hash = hash<<8 | GroupHash(b)
	}
	return max(hash, 1)
}

// GroupOf returns what the id of a message says about its group, in a queue with the settings.
func GroupOf(m *Message, s *Settings) GroupHash {
	if group := m.Group(); group != "" {
		return HashGroup(group)
	}
	if s.LimitsGroups() {
		return NoGroup
	}
	return NotIndexed
}
