package bench

import (
	"slices"
	"strings"
	"testing"
)

// Whatever is not in turn is an error, and served to whom is counted.
func TestTurnsOf(t *testing.T) {
	var inTurn, firstComeFirstServed []string
	for range smallGroup {
		inTurn = append(inTurn, largeGroup)
		for i := range manyGroups {
			inTurn = append(inTurn, groupName(i))
		}
		firstComeFirstServed = append(firstComeFirstServed, largeGroup)
	}
	if first, done, err := turnsOf(inTurn); first != 101 || done != 10_100 || err != nil {
		t.Errorf("in turn: %d, %d, %v", first, done, err)
	}

	late := slices.Clone(inTurn)
	late[100], late[101] = late[101], late[100]
	for words, popped := range map[string][]string{
		"10000 items of small groups are left":           firstComeFirstServed,
		"1 items of small groups are left":               append(slices.Clone(inTurn[:10_099]), largeGroup),
		"its first delivery after 102: want at most 101": late,
	} {
		if _, _, err := turnsOf(popped); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want %s", err, words)
		}
	}
}
