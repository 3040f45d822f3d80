// Package cluster walks through what people do with nodekeeper in a cluster of real kubelets and
// controllers: they apply the manifests, label nodes, delete them, have their kubelets register
// them again, roll the services, drain nodes, and uninstall.
//
// Before that, TestTutorial types the commands of docs/tutorials/getting-started.md as they are on
// the page, and then those of install-a-release.md; TestDemoImage types those of demo-image.md.
//
// TestPlacementTutorial and TestPlacement do the same with placement.
//
// make cluster-test makes such a cluster, loads the images, and runs all but TestPlacement, which
// make cluster-test PRODUCT=placement runs. Alone they skip: they need a cluster that is not
// otherwise used, and a way to stop and start kubelets.
//
// The walk does with kubectl what people do with kubectl, and looks at the outcome with a client.
// Its steps are one test, as each goes on from the cluster that the one before it left.
package cluster
