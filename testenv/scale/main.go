// Scale says how many bridges, fdbservers and NATS servers a rate of jobs needs: docs/scale.md.
// It goes by a model, whose figures come from benchmarks on one machine:
//
//	make scale                             measures, into bin/scale.txt
//	go run ./testenv/scale -check          what the model predicts beside what was measured
//	go run ./testenv/scale -rate 100000    what that many jobs a second need
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
)

//go:embed measured.txt
var measured []byte

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is the command with its arguments.
func run(w io.Writer, args []string) error {
	set := flag.NewFlagSet("scale", flag.ContinueOnError)
	file := set.String("measured", "", "`file` with the output of make scale; if unset, what the "+
		"page goes by")
	check := set.Bool("check", false, "compare the model with what was measured")
	p := plan{}
	set.Float64Var(&p.rate, "rate", 1e5, "jobs a second, each pushed, leased and acknowledged")
	set.Float64Var(&p.queues, "queues", 1000, "queues that share them evenly")
	set.Float64Var(&p.processors, "cores", 4, "processors of a bridge, and of a NATS server")
	set.Float64Var(&p.load, "load", 0.5, "share of its processors that a process may use")
	set.Float64Var(&p.copies, "copies", 3, "copies that FoundationDB keeps: 1, 2 or 3")
	set.Float64Var(&p.begin, "begin", 1, "`ms` until a transaction has its read version")
	set.Float64Var(&p.read, "read", 1, "`ms` of a round of reads")
	set.Float64Var(&p.commit, "commit", 3, "`ms` of a commit")
	if err := set.Parse(args); err != nil {
		return err
	}

	text := measured
	if *file != "" {
		var err error
		if text, err = os.ReadFile(*file); err != nil {
			return err
		}
	}
	m, err := parse(bytes.NewReader(text))
	if err != nil {
		return err
	}

	if *check {
		return m.check(w)
	}
	return p.write(w, m)
}
