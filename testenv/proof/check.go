package proof

import (
	"errors"
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// ErrUndecided: the check could not decide in time whether there is an order of the
// operations. That proves neither a fault nor its absence.
var ErrUndecided = errors.New("undecided")

// Check returns everything that is wrong with a history, joined. It spends at most
// timeout on a queue; if that is not enough for one of them, the error wraps
// ErrUndecided.
func (h *History) Check(timeout time.Duration) error {
	var problems []error
	names, ops := h.byQueue()
	for _, name := range names {
		a := h.newAccount(name, ops[name])
		if err := h.auditOf(a, ops[name]); err != nil { // the model assumes that there is nothing
			problems = append(problems, fmt.Errorf("queue %s: %w", name, err))
			continue
		}
		result, err := h.check(a, ops[name], timeout)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("queue %s: %w", name, err))
		case result == porcupine.Unknown:
			problems = append(problems, fmt.Errorf("queue %s: %w after %v", name, ErrUndecided, timeout))
		case result == porcupine.Illegal:
			problems = append(problems, fmt.Errorf("queue %s: not linearizable", name))
		}
	}
	return errors.Join(problems...)
}

func (h *History) check(a *account, ops []*books.Operation, timeout time.Duration) (porcupine.CheckResult, error) {
	result := porcupine.Unknown
	for _, simple := range []bool{true, false} {
		m, numbers, err := newModel(a, h.OneByOne, simple)
		if err != nil {
			return porcupine.Unknown, err
		}
		result = porcupine.CheckOperationsTimeout(m.porcupine(), steps(a, ops, m, numbers), timeout)
		if result == porcupine.Ok || a.certain() {
			break
		}
	}
	return result, nil
}

// Visualize writes, for each queue that is not linearizable, a page that shows how far
// an order can be found. It returns the paths of the pages, which begin with prefix.
func (h *History) Visualize(prefix string, timeout time.Duration) (paths []string, err error) {
	names, ops := h.byQueue()
	for _, name := range names {
		a := h.newAccount(name, ops[name])
		m, numbers, err := newModel(a, h.OneByOne, false)
		if err != nil || h.auditOf(a, ops[name]) != nil {
			continue // there is no model of it
		}
		result, info := porcupine.CheckOperationsVerbose(m.porcupine(), steps(a, ops[name], m, numbers), timeout)
		if result == porcupine.Ok {
			continue
		}
		path := prefix + "-" + name + ".html"
		if err := porcupine.VisualizePath(m.porcupine(), info, path); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}
