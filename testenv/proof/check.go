package proof

import (
	"errors"
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// ErrUndecided: the check could not decide, with the time and memory it may take, whether there is
// an order of the operations. That proves neither a fault nor its absence.
var ErrUndecided = errors.New("undecided")

// maxRoom is about how many bytes of states the search for an order may keep. Where there is none,
// and many operations have an unknown outcome, there are more states than any machine has memory
// for.
const maxRoom = 1 << 30

// Check returns everything that is wrong with a history, joined. It spends at most timeout on a
// queue, and some gigabytes of memory. If that is not enough for one of them, the error wraps
// ErrUndecided.
func (h *History) Check(timeout time.Duration) error {
	var problems []error
	for a := range h.accounts() {
		// The model assumes that the audit finds nothing.
		err := h.auditOf(a)
		if err == nil {
			err = h.checkOrder(a, timeout, maxRoom)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("queue %s: %w", a.queue, err))
		}
	}

	return errors.Join(problems...)
}

// checkOrder looks for an order of the operations on one queue, first with the simple model. Its
// states may take about room bytes.
func (h *History) checkOrder(a *account, timeout time.Duration, room int) error {
	var m *queueModel
	result := porcupine.Unknown
	for _, simple := range []bool{true, false} {
		var err error
		if m, err = newModel(a, h.OneByOne, simple); err != nil {
			return err
		}
		list := steps(a, m)
		result = porcupine.CheckOperationsTimeout(m.porcupine(len(list), room), list, timeout)
		if result == porcupine.Ok || a.certain() {
			break
		}
	}

	switch {
	case result == porcupine.Unknown:
		return fmt.Errorf("%w after %v", ErrUndecided, timeout)
	case result == porcupine.Illegal && m.room < 0:
		return fmt.Errorf("%w with %d MB", ErrUndecided, room>>20)
	case result == porcupine.Illegal:
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

		list := steps(a, m)
		model := m.porcupine(len(list), maxRoom)
		result, info := porcupine.CheckOperationsVerbose(model, list, timeout)
		if result == porcupine.Ok {
			continue
		}

		m.room = maxRoom // it does the steps of the page once more
		path := prefix + "-" + a.queue + ".html"
		if err := porcupine.VisualizePath(model, info, path); err != nil {
			return paths, err
		}

		paths = append(paths, path)
	}

	return paths, nil
}
