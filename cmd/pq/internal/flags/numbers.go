package flags

import (
	"errors"
	"strconv"

	"github.com/pqbridge/pqbridge/subjects"
)

// Values of flags that are decimal numbers. pflag's own read 010 as 8.
type (
	// Priority is a priority as the protocol defines it.
	Priority int64
	// Count is how many of something.
	Count int
)

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

// Set implements pflag.Value.
func (c *Count) Set(text string) error {
	count, err := strconv.Atoi(text)
	*c = Count(count)
	if err != nil {
		return errors.New("want a decimal number")
	}
	return nil
}

// String implements pflag.Value.
func (c *Count) String() string { return strconv.Itoa(int(*c)) }

// Type implements pflag.Value.
func (c *Count) Type() string { return "int" }
