package process

import (
	"os"
	"testing"
)

func TestMachineTime(t *testing.T) {
	if _, err := os.Stat("/proc/stat"); err != nil {
		t.Skip("no times of processors: ", err)
	}
	before := MachineTime()
	if before.All <= 0 || before.Stolen < 0 || before.Stolen > before.All {
		t.Errorf("%+v", before)
	}
	var passed Machine
	passed.Add(before, Machine{All: before.All + 5, Stolen: before.Stolen + 2})
	if passed != (Machine{All: 5, Stolen: 2}) {
		t.Errorf("passed are %+v", passed)
	}
}
