package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// progressEvery is how often the progress of a job is sent at most.
const progressEvery = time.Second

// progress makes a pipe for a command, whose number is in its environment as PQ_PROGRESS_FD. Each
// line that the command writes says how far the job is: the newest is sent, at most one a second.
// Call end once the command has ended or could not be started.
func (w *work) progress(
	ctx context.Context, c *exec.Cmd, job *client.Job,
) (end func(), err error) {
	if runtime.GOOS == "windows" { // which passes no files on
		return func() {}, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.ExtraFiles = append(c.ExtraFiles, write)
	c.Env = append(c.Env, fmt.Sprintf("PQ_PROGRESS_FD=%d", 2+len(c.ExtraFiles)))

	newest := make(chan string, 1)
	go func() { // ends with the last process that has the pipe, or with end
		defer close(newest)
		lines := bufio.NewReaderSize(read, settings.MaxProgress)
		for isRest := false; ; { // of a line that is too long
			line, err := lines.ReadSlice('\n')
			text := strings.TrimSpace(strings.ToValidUTF8(string(line), ""))
			if text != "" && !isRest {
				select {
				case <-newest:
				default:
				}
				newest <- text
			}
			isRest = errors.Is(err, bufio.ErrBufferFull)
			if err != nil && !isRest {
				return
			}
		}
	}()
	go func() {
		for text := range newest {
			_ = job.Progress(ctx, []byte(text)) // the lease says what matters
			select {
			case <-ctx.Done():
			case <-time.After(progressEvery):
			}
		}
	}()
	return func() {
		_ = write.Close()
		_ = read.Close()
	}, nil
}
