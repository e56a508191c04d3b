package main

import (
	"errors"
	"strconv"

	"github.com/pqbridge/pqbridge/subjects"
)

// Values of flags that are decimal numbers. Those of pflag take 010 for 8.
type (
	// priorityFlag is what the protocol takes for a priority.
	priorityFlag int64
	// countFlag is a number of things.
	countFlag int
)

func (p *priorityFlag) Set(text string) error {
	priority, err := subjects.ParsePriority(text)
	*p = priorityFlag(priority)
	return err
}

func (p *priorityFlag) String() string { return strconv.FormatInt(int64(*p), 10) }
func (p *priorityFlag) Type() string   { return "int" }

func (c *countFlag) Set(text string) error {
	count, err := strconv.Atoi(text)
	*c = countFlag(count)
	if err != nil {
		return errors.New("want a decimal number")
	}
	return nil
}

func (c *countFlag) String() string { return strconv.Itoa(int(*c)) }
func (c *countFlag) Type() string   { return "int" }
