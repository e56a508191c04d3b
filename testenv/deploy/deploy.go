// Package deploy checks what people deploy pqbridge with: the files in deploy/, and the workflows.
//
// It is a module of its own, because the packages of Helm, Prometheus and actionlint are none of
// the service's business. What needs the service itself, such as its variables and metrics, is
// tested in cmd/pqbridge; the two meet in testdata.
package deploy
