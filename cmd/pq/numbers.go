package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// Values of flags that are decimal numbers. pflag's own read 010 as 8.
type (
	// priorityFlag is a priority as the protocol defines it.
	priorityFlag int64
	// countFlag is how many of something.
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

// grouped writes n for people: 1,000.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// counts says how many things there are.
func counts(n int64, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + several
}

// rate says how many things were done in a time, and how many per second.
func rate(n int64, things string, in time.Duration) string {
	perSecond := int64(float64(n) / max(in.Seconds(), 1e-3))
	return fmt.Sprintf("%s %s, %s/s", grouped(n), things, grouped(perSecond))
}

// inWords writes a duration for people: 0.3 s, 2m5s.
func inWords(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
