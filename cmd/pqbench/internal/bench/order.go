package bench

import (
	"context"
	"fmt"
	"strconv"
)

// orderPriorities is how many distinct priorities the check of the order pushes.
const orderPriorities = 1000

// checkOrder pushes an item of each priority, the least urgent first, and pops all. In that
// sequence a queue that does not tell two priorities apart returns them in the wrong order.
func checkOrder(ctx context.Context, c *PeerClient) ([]Figure, error) {
	for priority := orderPriorities - 1; priority >= 0; priority-- {
		item := PeerItem{Priority: priority, Value: []byte(strconv.Itoa(priority))}
		if err := c.Push(ctx, []PeerItem{item}); err != nil {
			return nil, err
		}
	}

	pop := c.Pop
	if c.Pops == 0 {
		pop = c.Work
	}
	popped := make([]int, orderPriorities)
	for i := range popped {
		values, err := pop(ctx, 1)
		if err != nil {
			return nil, fmt.Errorf("after %d items: %w", i, err)
		}
		if popped[i], err = strconv.Atoi(string(values[0])); err != nil {
			return nil, err
		}
	}

	levels, inversions := order(popped)
	return []Figure{
		{Name: figureLevels, Value: float64(levels), Unit: fmt.Sprintf("of %d", orderPriorities)},
		{Name: "pairs in the wrong order", Value: float64(inversions)},
	}, nil
}

// figureLevels is how many priorities were kept apart and in order.
const figureLevels = "priorities in order"

// order counts the pairs in the wrong order, and the groups that are in order among each other.
// A queue that takes several priorities for one returns these as they were pushed, the least
// urgent first, so each group is one level of the queue.
func order(popped []int) (levels, inversions int) {
	for i := range popped {
		before, after := -1, popped[i]
		for _, p := range popped[:i] {
			before = max(before, p)
			if p > popped[i] {
				inversions++
			}
		}
		for _, p := range popped[i:] {
			after = min(after, p)
		}
		if before < after {
			levels++
		}
	}
	return levels, inversions
}
