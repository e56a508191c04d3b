package proof

import (
	"errors"
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// ErrUndecided: the check could not decide in time whether there is an order of the operations.
// That proves neither a fault nor its absence.
var ErrUndecided = errors.New("undecided")

// Check returns everything that is wrong with a history, joined. It spends at most timeout on a
// queue. If that is not enough for one of them, the error wraps ErrUndecided.
func (h *History) Check(timeout time.Duration) error {
	var problems []error
	for a := range h.accounts() {
		// The model assumes that the audit finds nothing.
		err := h.auditOf(a)
		if err == nil {
			err = h.checkOrder(a, timeout)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("queue %s: %w", a.queue, err))
		}
	}

	return errors.Join(problems...)
}

// checkOrder looks for an order of the operations on one queue, first with the simple model.
func (h *History) checkOrder(a *account, timeout time.Duration) error {
	result := porcupine.Unknown
	for _, simple := range []bool{true, false} {
		m, err := newModel(a, h.OneByOne, simple)
		if err != nil {
			return err
		}
		result = porcupine.CheckOperationsTimeout(m.porcupine(), steps(a, m), timeout)
		if result == porcupine.Ok || a.certain() {
			break
		}
	}

	switch result {
	case porcupine.Unknown:
		return fmt.Errorf("%w after %v", ErrUndecided, timeout)
	case porcupine.Illegal:
		return errors.New("not linearizable")
	}

	return nil
}

// Visualize writes, for each queue that is not linearizable, a page that shows how far an order can
// be found. It returns the paths of the pages, which begin with prefix.
func (h *History) Visualize(prefix string, timeout time.Duration) (paths []string, err error) {
	for a := range h.accounts() {
		m, err := newModel(a, h.OneByOne, false)
		if err != nil || h.auditOf(a) != nil {
			continue // There is no model of it.
		}

		result, info := porcupine.CheckOperationsVerbose(m.porcupine(), steps(a, m), timeout)
		if result == porcupine.Ok {
			continue
		}

		path := prefix + "-" + a.queue + ".html"
		if err := porcupine.VisualizePath(m.porcupine(), info, path); err != nil {
			return paths, err
		}

		paths = append(paths, path)
	}

	return paths, nil
}
