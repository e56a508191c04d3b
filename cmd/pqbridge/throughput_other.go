//go:build !linux

package main

import (
	"context"
	"log/slog"
)

// chooseClass does nothing: only Linux has classes of the scheduler.
func chooseClass(context.Context, *slog.Logger) {}
