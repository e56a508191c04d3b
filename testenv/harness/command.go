package harness

import (
	"context"
	"os/exec"
)

// Command is exec.Command for a child that, on Linux, is killed when this process ends, in whatever
// way: after a panic, a time-out or kill -9 no clean-up of a test runs.
func Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	tie(cmd)
	return cmd
}

// CommandContext is Command for exec.CommandContext.
func CommandContext(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	tie(cmd)
	return cmd
}
