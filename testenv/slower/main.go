// Slower says whether a build takes more processor time than the one that make bench compared it
// with, and fails if any row does:
//
//	go run ./testenv/slower bin/bench.txt
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	unit    = "cpu-ratio-%" // of BenchmarkService: this build's processor time, of the other's
	limit   = 115           // the most that a median may be
	atLeast = 6             // turns of a row: benchstat has no range for the median of fewer
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: slower FILE")
	}
	f, err := os.Open(os.Args[1])
	if err == nil {
		err = judge(os.Stdout, f)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// judge reads the output of make bench and writes which rows were not compared and how many were.
// It returns an error that names each row that is slower, or has too few turns to tell.
func judge(w io.Writer, output io.Reader) error {
	rows, names, err := read(output)
	if err != nil {
		return err
	}

	var problems []error
	compared := 0
	for _, name := range names {
		ratios := rows[name]
		switch m := median(ratios); {
		case len(ratios) == 0:
			fmt.Fprintf(w, "%s is left out: only one of the builds was measured\n", name)
			continue
		case len(ratios) < atLeast:
			problems = append(problems, fmt.Errorf("%s was compared in %d turns: that takes %d",
				name, len(ratios), atLeast))
		case m > limit:
			problems = append(problems, fmt.Errorf("%s takes %.3f times the processor time: "+
				"at most %.2f passes", name, m/100, limit/100.))
		}
		compared++
	}

	if compared == 0 {
		return errors.New("no row compares two builds")
	}
	if len(problems) == 0 {
		fmt.Fprintf(w, "rows compared: %d; none takes more than %.2f times the processor "+
			"time\n", compared, limit/100.)
	}
	return errors.Join(problems...)
}

// read returns the ratios of each row, one a turn, and the rows in their order.
func read(output io.Reader) (rows map[string][]float64, names []string, err error) {
	rows = map[string][]float64{}
	scanner := bufio.NewScanner(output)
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}

		name := strings.TrimPrefix(fields[0], "Benchmark")
		if _, known := rows[name]; !known {
			rows[name], names = nil, append(names, name)
		}
		i := slices.Index(fields, unit)
		if i < 0 {
			continue
		}
		ratio, err := strconv.ParseFloat(fields[i-1], 64)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		rows[name] = append(rows[name], ratio)
	}
	return rows, names, scanner.Err()
}

// median returns 0 if there are no values.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
