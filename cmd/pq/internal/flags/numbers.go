package flags

import (
	"strconv"

	"github.com/pqbridge/pqbridge/subjects"
)

// Priority is the value of a flag that is a priority, as the protocol defines it: pflag would read
// 010 as 8.
type Priority int64

// Set implements pflag.Value.
func (p *Priority) Set(text string) error {
	priority, err := subjects.ParsePriority(text)
	*p = Priority(priority)
	return err
}

// String implements pflag.Value.
func (p *Priority) String() string { return strconv.FormatInt(int64(*p), 10) }

// Type implements pflag.Value.
func (p *Priority) Type() string { return "int" }
