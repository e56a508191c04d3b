package client_test

import (
	"os/exec"
	"reflect"
	"regexp"
	"testing"

	"github.com/pqbridge/pqbridge/client"
)

// go doc shows the fields of types whose definitions are in other packages.
func TestDocOfFields(t *testing.T) {
	for _, value := range []any{
		client.Item{}, client.Delivery{}, client.DeadLetter{}, client.Settings{}, client.QueueInfo{}, client.PriorityCount{}, client.QueueConsumer{},
		client.StoredItem{}, client.ItemsOptions{}, client.ItemsPage{}, client.ItemResult{},
	} {
		of := reflect.TypeOf(value)
		doc, err := exec.Command("go", "doc", "client."+of.Name()).CombinedOutput()
		if err != nil {
			t.Fatalf("go doc client.%s: %v\n%s", of.Name(), err, doc)
		}
		for _, field := range reflect.VisibleFields(of) {
			if field.Anonymous || !field.IsExported() || of.Name() == "Delivery" && len(field.Index) > 1 && field.Index[0] == 0 {
				continue // of a Delivery, those of Item are elsewhere
			}
			if !regexp.MustCompile(`(?m)^\s+` + field.Name + `\s+\S`).Match(doc) {
				t.Errorf("go doc client.%s lacks the field %s:\n%s", of.Name(), field.Name, doc)
			}
		}
	}
}
