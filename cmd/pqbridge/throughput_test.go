package main

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestThroughput(t *testing.T) {
	now := time.Unix(1000, 0)
	var used time.Duration
	var set []bool
	tp := &throughput{
		used: func() (time.Duration, error) { return used, nil },
		set:  func(batch bool) error { set = append(set, batch); return nil },
		now:  func() time.Time { return now },
	}
	// look goes on by that much time, of which the process computed a share.
	look := func(passed time.Duration, share float64) {
		t.Helper()
		now = now.Add(passed)
		used += time.Duration(share * float64(passed))
		if err := tp.look(); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, want ...bool) {
		t.Helper()
		if !slices.Equal(set, want) {
			t.Fatalf("%s: classes set so far %v, want %v", what, set, want)
		}
	}
	used = time.Hour // of before
	look(throughputInterval, 0)
	expect("the first look knows nothing")
	look(throughputInterval, 0.2)
	expect("not busy")
	look(throughputInterval, 0.3)
	expect("busy", true)
	look(throughputInterval, 1.9)
	expect("still busy", true)
	for range int(calmTime/throughputInterval) - 1 {
		look(throughputInterval, 0.1)
	}
	expect("calm, but not for long", true)
	look(throughputInterval, 0.1)
	expect("calm", true, false)
	look(time.Hour, 0.24)
	expect("calm for an hour", true, false)
	look(throughputInterval, 0.25)
	expect("busy again", true, false, true)
}

func TestThroughputErrors(t *testing.T) {
	broken := errors.New("broken")
	used := time.Duration(0)
	tp := &throughput{
		used: func() (time.Duration, error) { return used, nil },
		set:  func(bool) error { return broken },
		now:  func() time.Time { return time.Unix(int64(used/time.Second), 0) },
	}
	if err := tp.look(); err != nil {
		t.Fatal(err)
	}
	used = time.Hour
	if err := tp.look(); !errors.Is(err, broken) {
		t.Errorf("the class cannot be set: %v, want %v", err, broken)
	}
	tp.used = func() (time.Duration, error) { return 0, broken }
	if err := tp.look(); !errors.Is(err, broken) {
		t.Errorf("the processor time cannot be read: %v, want %v", err, broken)
	}
}
