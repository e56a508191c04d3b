package leaf_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
