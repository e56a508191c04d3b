package bench

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// syncTime returns how long the disk below dir takes to sync a small write to a file that
// exists already: the median of some.
func syncTime(dir string) (_ time.Duration, err error) {
	const blocks, block = 50, 4096
	file, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()

	if _, err = file.Write(make([]byte, blocks*block)); err == nil {
		err = file.Sync()
	}

	times := make([]time.Duration, 0, blocks)
	for i := 0; i < blocks && err == nil; i++ {
		begin := time.Now()
		if _, err = file.WriteAt([]byte{1}, int64(i)*block); err == nil {
			err = file.Sync()
		}
		times = append(times, time.Since(begin))
	}

	if err != nil {
		return 0, err
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}
