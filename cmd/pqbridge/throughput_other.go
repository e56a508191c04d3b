//go:build !linux

package main

import "time"

// Only Linux has classes of the scheduler.

func processorTime() (time.Duration, error) { return 0, nil }

func normalClass() bool { return false }

func setBatchClass(bool) error { return nil }
