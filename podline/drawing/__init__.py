"""Pictures and charts as matplotlib and OpenCV draw them: skeletons, sheets, maps."""
